# Removes the files that the last `cmake --install` of a build has installed: cmake -DMANIFEST=…/install_manifest.txt -P
# uninstall.cmake Also removes folders named dlock, and folders in them, if they are empty afterwards. $DESTDIR must be
# the same as then.
if(NOT EXISTS ${MANIFEST})
  message(FATAL_ERROR "Nothing has been installed from this build: there is no ${MANIFEST}. What another "
    "build has installed is removed with that one.")
endif()
file(STRINGS ${MANIFEST} files)

set(removed 0)
set(folders "")
foreach(file IN LISTS files)
  set(file $ENV{DESTDIR}${file})
  get_filename_component(folder ${file} DIRECTORY)
  list(APPEND folders ${folder} ${folder}/dlock) # the folder `dlock` beside the library is for other people's modules
  if(NOT EXISTS ${file} AND NOT IS_SYMLINK ${file})
    message(STATUS "Not there any more: ${file}")
    continue()
  endif()
  file(REMOVE ${file})
  if(EXISTS ${file} OR IS_SYMLINK ${file})
    message(FATAL_ERROR "Cannot remove ${file}: run this as the user who installed it")
  endif()
  math(EXPR removed "${removed} + 1")
endforeach()

# Sorted in descending order, each folder comes before the one that contains it.
foreach(folder IN LISTS folders)
  while(folder MATCHES "/dlock(/|$)")
    list(APPEND ours ${folder})
    get_filename_component(folder ${folder} DIRECTORY)
  endwhile()
endforeach()
list(REMOVE_DUPLICATES ours)
list(SORT ours ORDER DESCENDING)
foreach(folder IN LISTS ours)
  file(GLOB inside ${folder}/*)
  if(IS_DIRECTORY ${folder} AND NOT inside)
    file(REMOVE_RECURSE ${folder})
  endif()
endforeach()
message(STATUS "Removed ${removed} files")
